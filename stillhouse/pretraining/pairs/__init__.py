"""Pair tasks (004): queries and passages drawn from unlabelled articles, and the two towers that learn from them."""
