# Everything that runs without machines of its own, on an emulated AWS: `make aws-local` applies it.

terraform {
  required_version = ">= 1.8"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
  }
}

provider "aws" {
  region                      = var.region
  access_key                  = var.access_key
  secret_key                  = var.secret_key
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true

  endpoints {
    apigateway     = var.endpoint
    cloudwatch     = var.endpoint
    events         = var.endpoint
    iam            = var.endpoint
    lambda         = var.endpoint
    logs           = var.endpoint
    s3             = var.endpoint
    secretsmanager = var.endpoint
    sns            = var.endpoint
    sqs            = var.endpoint
    sts            = var.endpoint
  }
}

resource "aws_cloudwatch_log_group" "access" {
  name              = "/minitoolstream/${var.name}/access"
  retention_in_days = 1
}

module "stack" {
  source = "../../modules/stack"

  name               = var.name
  stage              = "local"
  region             = var.region
  packages           = var.packages
  tarantool_address  = var.tarantool_address
  secrets            = var.secrets
  s3_endpoint        = var.endpoint
  sqs_endpoint       = var.endpoint
  settings           = merge({ AWS_ENDPOINT_URL = var.endpoint }, var.settings)
  cors_origins       = var.cors_origins
  access_log_arn     = aws_cloudwatch_log_group.access.arn
  tls_only           = false
  force_destroy      = true
  visibility_seconds = var.visibility_seconds
  tries              = var.tries
}
