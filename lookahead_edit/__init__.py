"""Language models rewrite files faster: drafts copied from the file, verified exactly."""
