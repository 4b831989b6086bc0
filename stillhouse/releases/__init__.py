"""From a changed corpus to a release: git, DVC, promotions, and the refresh that makes them."""
