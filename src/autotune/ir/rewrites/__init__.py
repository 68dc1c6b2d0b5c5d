"""What programs of others do, in the form that workloads have it: one rewrite a module."""
