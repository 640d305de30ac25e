output "vpc_id" {
  description = "Id of the VPC."
  value       = aws_vpc.this.id
}

output "cidr" {
  description = "Its addresses."
  value       = aws_vpc.this.cidr_block
}

output "private_subnet_ids" {
  description = "Ids of the private subnets, by the order of zones."
  value       = [for zone in var.zones : aws_subnet.private[zone].id]
}

output "functions_security_group_id" {
  description = "Security group of the functions."
  value       = aws_security_group.functions.id
}
