output "address" {
  description = "host:port for the functions."
  value       = "${aws_instance.this.private_ip}:3301"
}

output "security_group_id" {
  description = "Security group of Tarantool."
  value       = aws_security_group.this.id
}

output "instance_id" {
  description = "Id of its machine: a reboot fetches code and password anew."
  value       = aws_instance.this.id
}
