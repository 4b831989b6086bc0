"""Sources of a corpus, one module per format. Each yields rows with their place; `cleaning` accepts or rejects them."""
