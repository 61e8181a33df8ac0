"""Value types shared by every layer: frozen dataclasses, standard library only."""
