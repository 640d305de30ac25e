output "address" {
  description = "host:port for the functions."
  value       = "${aws_instance.this.private_ip}:3301"
}

output "security_group_id" {
  description = "Security group of Tarantool."
  value       = aws_security_group.this.id
}
