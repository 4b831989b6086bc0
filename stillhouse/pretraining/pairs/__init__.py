"""Pair tasks (Chang et al.): queries and passages drawn from unlabelled articles, and the two towers that learn from
them."""
