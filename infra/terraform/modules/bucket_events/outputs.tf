output "bucket" {
  description = "Name of the bucket."
  value       = aws_s3_bucket.this.bucket
}

output "bucket_arn" {
  description = "ARN of the bucket."
  value       = aws_s3_bucket.this.arn
}

output "queue_url" {
  description = "URL of the queue of events."
  value       = aws_sqs_queue.events.url
}

output "queue_arn" {
  description = "ARN of the queue of events."
  value       = aws_sqs_queue.events.arn
}

output "queue_name" {
  description = "Name of the queue of events, as metrics have it."
  value       = aws_sqs_queue.events.name
}

output "dead_letters_url" {
  description = "URL of the queue of dead letters: `mts aws redrive` reads it."
  value       = aws_sqs_queue.dead.url
}

output "dead_letters_arn" {
  description = "ARN of the queue of dead letters."
  value       = aws_sqs_queue.dead.arn
}

output "dead_letters_name" {
  description = "Name of the queue of dead letters, as metrics have it."
  value       = aws_sqs_queue.dead.name
}
