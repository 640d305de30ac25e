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
  description         = var.name
  enable_key_rotation = true
  policy              = data.aws_iam_policy_document.key.json
}

module "network" {
  source = "../network"

  name        = var.name
  region      = var.region
  zones       = var.zones
  nat         = true
  kms_key_arn = aws_kms_key.this.arn
}

module "tarantool" {
  source = "../tarantool"

  name            = var.name
  region          = var.region
  vpc_id          = module.network.vpc_id
  subnet_id       = module.network.private_subnet_ids[0]
  zone            = var.zones[0]
  ami_id          = var.tarantool_ami
  instance_type   = var.tarantool_instance_type
  memory_bytes    = var.tarantool_memory_bytes
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
  source = "../database"

  name                = var.name
  vpc_id              = module.network.vpc_id
  subnet_ids          = module.network.private_subnet_ids
  password            = var.secrets["pipeline.password"]
  multi_az            = var.highly_available
  deletion_protection = var.highly_available
  kms_key_arn         = aws_kms_key.this.arn

  client_security_group_ids = {
    functions = module.network.functions_security_group_id
    spark     = module.emr.security_group_id
  }
}

module "emr" {
  source = "../emr"

  name            = var.name
  vpc_id          = module.network.vpc_id
  subnet_ids      = module.network.private_subnet_ids
  bucket_arn      = module.stack.bucket_arn
  code_bucket_arn = "arn:aws:s3:::${var.code_bucket}"
  secret_arn      = module.stack.secret_arn
}

module "stack" {
  source = "../stack"

  name               = var.name
  stage              = var.stage
  region             = var.region
  packages           = var.packages
  tarantool_address  = module.tarantool.address
  secrets            = var.secrets
  subnet_ids         = module.network.private_subnet_ids
  security_group_ids = [module.network.functions_security_group_id]
  cors_origins       = var.cors_origins
  kms_key_arn        = aws_kms_key.this.arn
  concurrency        = var.concurrency
  tracing            = true
  settings           = { MTS_PIPELINE_DATABASE = module.database.url }
}
