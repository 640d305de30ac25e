output "application_id" {
  description = "Id of the application: `aws emr-serverless start-job-run --application-id`."
  value       = aws_emrserverless_application.this.id
}

output "role_arn" {
  description = "Role of the jobs: `--execution-role-arn`."
  value       = aws_iam_role.this.arn
}

output "security_group_id" {
  description = "Security group of the jobs."
  value       = aws_security_group.this.id
}
