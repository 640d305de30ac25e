terraform {
  required_version = ">= 1.8"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
  }

  # Filled in by `terraform init -backend-config=...`: the state holds secrets.
  backend "s3" {
    encrypt      = true
    use_lockfile = true
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { Project = "minitoolstream", Environment = "prod" }
  }
}

module "environment" {
  source = "../../modules/environment"

  name                    = "minitoolstream-prod"
  stage                   = "prod"
  region                  = var.region
  zones                   = var.zones
  packages                = var.packages
  code_bucket             = var.code_bucket
  secrets                 = var.secrets
  cors_origins            = var.cors_origins
  api_logging_role        = var.api_logging_role
  settings                = var.settings
  tarantool_ami           = var.tarantool_ami
  tarantool_instance_type = "r7i.xlarge"
  tarantool_memory_bytes  = 17179869184
  highly_available        = true
  concurrency             = 100
}
