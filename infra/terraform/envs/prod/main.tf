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

locals {
  name = "minitoolstream-prod"
}

data "aws_caller_identity" "this" {}

data "aws_iam_policy_document" "key" {
  statement {
    sid       = "Account"
    actions   = ["kms:*"]
    resources = ["*"]

    principals {
      type        = "AWS"
      identifiers = ["arn:aws:iam::${data.aws_caller_identity.this.account_id}:root"]
    }
  }

  statement {
    sid       = "Services"
    actions   = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*", "kms:DescribeKey"]
    resources = ["*"]

    principals {
      type        = "Service"
      identifiers = ["logs.${var.region}.amazonaws.com", "s3.amazonaws.com", "cloudwatch.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.this.account_id]
    }
  }
}

resource "aws_kms_key" "this" {
  description         = local.name
  enable_key_rotation = true
  policy              = data.aws_iam_policy_document.key.json
}

module "network" {
  source = "../../modules/network"

  name        = local.name
  region      = var.region
  zones       = var.zones
  nat         = true
  kms_key_arn = aws_kms_key.this.arn
}

module "tarantool" {
  source = "../../modules/tarantool"

  name            = local.name
  region          = var.region
  vpc_id          = module.network.vpc_id
  subnet_id       = module.network.private_subnet_ids[0]
  zone            = var.zones[0]
  ami_id          = var.tarantool_ami
  instance_type   = "r7i.xlarge"
  memory_bytes    = 17179869184
  kms_key_arn     = aws_kms_key.this.arn
  secret_arn      = module.stack.secret_arn
  code_url        = "s3://${var.code_bucket}/tarantool.tar.gz"
  code_bucket_arn = "arn:aws:s3:::${var.code_bucket}"

  client_security_group_ids = {
    functions = module.network.functions_security_group_id
    spark     = module.emr.security_group_id
  }
}

module "database" {
  source = "../../modules/database"

  name                = local.name
  vpc_id              = module.network.vpc_id
  subnet_ids          = module.network.private_subnet_ids
  password            = var.secrets["pipeline.password"]
  multi_az            = true
  deletion_protection = true
  kms_key_arn         = aws_kms_key.this.arn

  client_security_group_ids = {
    functions = module.network.functions_security_group_id
    spark     = module.emr.security_group_id
  }
}

module "emr" {
  source = "../../modules/emr"

  name            = local.name
  vpc_id          = module.network.vpc_id
  subnet_ids      = module.network.private_subnet_ids
  bucket_arn      = module.stack.bucket_arn
  code_bucket_arn = "arn:aws:s3:::${var.code_bucket}"
  secret_arn      = module.stack.secret_arn
}

module "stack" {
  source = "../../modules/stack"

  name               = local.name
  stage              = "prod"
  region             = var.region
  packages           = var.packages
  tarantool_address  = module.tarantool.address
  secrets            = var.secrets
  subnet_ids         = module.network.private_subnet_ids
  security_group_ids = [module.network.functions_security_group_id]
  cors_origins       = var.cors_origins
  kms_key_arn        = aws_kms_key.this.arn
  concurrency        = 200
  tracing            = true
  settings           = { MTS_PIPELINE_DATABASE = module.database.url }
}
