"""What `make proto` makes of the `.proto` files; nothing here is written by hand."""
