"""The command ``doctor``: checks that show what each finding costs and how to fix it. It writes nothing."""
