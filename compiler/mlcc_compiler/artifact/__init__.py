"""Writing the artifact folder of a compile."""
