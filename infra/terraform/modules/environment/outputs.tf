output "url" {
  description = "Where the API is: MTS_URL of clients."
  value       = module.stack.url
}

output "stack" {
  description = "Names, addresses and ids of what was made."
  value       = module.stack
}

output "spark" {
  description = "Application and role for the steps of spark_emr/."
  value       = module.emr
}

output "tarantool" {
  description = "Where Tarantool is, and the id of its machine."
  value       = module.tarantool
}
