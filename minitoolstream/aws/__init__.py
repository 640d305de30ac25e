"""What an operator does on AWS beside Terraform."""
