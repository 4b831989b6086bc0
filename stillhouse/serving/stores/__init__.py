"""Publishing a release to a vector store that people run, and searching there."""
