output "rule_arn" {
  description = "ARN of the rule."
  value       = aws_cloudwatch_event_rule.this.arn
}
