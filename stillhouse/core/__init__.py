"""What everything else uses: settings, artifacts, errors, files, progress and remote addresses."""
