output "name" {
  description = "Name of the function."
  value       = aws_lambda_function.this.function_name
}

output "arn" {
  description = "ARN of the function."
  value       = aws_lambda_function.this.arn
}

output "invoke_arn" {
  description = "What API Gateway calls."
  value       = aws_lambda_function.this.invoke_arn
}

output "log_group" {
  description = "Name of its log group."
  value       = aws_cloudwatch_log_group.this.name
}
