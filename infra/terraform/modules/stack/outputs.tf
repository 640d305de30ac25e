output "url" {
  description = "Where the API is: MTS_URL of clients."
  value       = module.api.url
}

output "api_id" {
  description = "Id of the API."
  value       = module.api.id
}

output "bucket" {
  description = "Name of the bucket."
  value       = module.bucket_events.bucket
}

output "queue_url" {
  description = "URL of the queue of events."
  value       = module.bucket_events.queue_url
}

output "dead_letters_url" {
  description = "URL of the queue of dead letters."
  value       = module.bucket_events.dead_letters_url
}

output "secret" {
  description = "Name of the secret."
  value       = aws_secretsmanager_secret.this.name
}

output "functions" {
  description = "Names of the functions."
  value       = { for key, function in module.function : key => function.name }
}

output "alarms_topic" {
  description = "Topic of the alarms."
  value       = module.observability.topic_arn
}

output "bucket_arn" {
  description = "ARN of the bucket."
  value       = module.bucket_events.bucket_arn
}

output "secret_arn" {
  description = "ARN of the secret."
  value       = aws_secretsmanager_secret.this.arn
}
