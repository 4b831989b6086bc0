"""Serves one release over HTTP: a model, index, corpus and lexical index that were made together."""
