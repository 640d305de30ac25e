"""What `make proto` makes of the `.proto` files, and `names` beside it: the only part that is written by hand."""
