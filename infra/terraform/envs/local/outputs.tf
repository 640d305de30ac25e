output "stack" {
  description = "Names, addresses and ids of what was made."
  value       = module.stack
}
