output "id" {
  description = "Id of the API."
  value       = aws_api_gateway_rest_api.this.id
}

output "name" {
  description = "Name of the API, as metrics have it."
  value       = aws_api_gateway_rest_api.this.name
}

output "stage" {
  description = "Name of the stage."
  value       = aws_api_gateway_stage.this.stage_name
}

output "url" {
  description = "Where the API is: what clients are given as MTS_URL."
  value       = aws_api_gateway_stage.this.invoke_url
}
