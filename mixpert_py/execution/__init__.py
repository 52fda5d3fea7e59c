"""The places where a user's program is run: processes of this machine, and Dask clusters."""
