"""Recovery methods: one file is one method, behind one contract."""
