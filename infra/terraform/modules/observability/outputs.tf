output "topic_arn" {
  description = "Topic of the alarms: subscribe an address to it."
  value       = aws_sns_topic.alarms.arn
}
