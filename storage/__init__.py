"""Object stores behind one seam."""
