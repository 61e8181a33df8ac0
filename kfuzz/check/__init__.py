"""`kfuzz check`: whether a binding can be judged, told in seconds, before a search."""
