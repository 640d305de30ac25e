output "url" {
  description = "Where the API is: MTS_URL of clients."
  value       = module.environment.url
}

output "stack" {
  description = "Names, addresses and ids of what was made."
  value       = module.environment.stack
}

output "spark" {
  description = "Application and role for the steps of spark_emr/."
  value       = module.environment.spark
}

output "tarantool" {
  description = "Where Tarantool is, and the id of its machine."
  value       = module.environment.tarantool
}
