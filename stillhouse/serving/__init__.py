"""Serving one release: model, index, corpus and lexical index of one making, behind HTTP."""
