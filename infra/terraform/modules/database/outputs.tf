output "url" {
  description = "pipeline.database of the functions."
  value       = "mysql://mts@${aws_db_instance.this.address}:3306/pipeline_db?tls=true"
}
