"""Sources of a corpus, one file a format. Each yields rows that know where they stood; `cleaning` judges them."""
