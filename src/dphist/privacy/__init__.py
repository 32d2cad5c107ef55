"""The boundary: beyond it nothing holds an exact count."""
