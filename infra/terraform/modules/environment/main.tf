data "aws_caller_identity" "this" {}

locals {
  account = data.aws_caller_identity.this.account_id
}

data "aws_iam_policy_document" "key" {
  statement {
    sid       = "Account"
    actions   = ["kms:*"]
    resources = ["*"]

    principals {
      type        = "AWS"
      identifiers = ["arn:aws:iam::${local.account}:root"]
    }
  }

  statement {
    sid       = "Services"
    actions   = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*", "kms:DescribeKey"]
    resources = ["*"]

    principals {
      type        = "Service"
      identifiers = ["s3.amazonaws.com", "cloudwatch.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account]
    }
  }

  # CloudWatch Logs tells for which log group it asks, as its manual has it.
  statement {
    sid       = "Logs"
    actions   = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*", "kms:DescribeKey"]
    resources = ["*"]

    principals {
      type        = "Service"
      identifiers = ["logs.${var.region}.amazonaws.com"]
    }

    condition {
      test     = "ArnLike"
      variable = "kms:EncryptionContext:aws:logs:arn"
      values   = ["arn:aws:logs:${var.region}:${local.account}:*"]
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

  name          = var.name
  region        = var.region
  vpc_id        = module.network.vpc_id
  subnet_id     = module.network.private_subnet_ids[0]
  zone          = var.zones[0]
  ami_id        = var.tarantool_ami
  instance_type = var.tarantool_instance_type
  memory_bytes  = var.tarantool_memory_bytes
  kms_key_arn   = aws_kms_key.this.arn
  secret_arn    = module.stack.secret_arn
  code_url      = "s3://${var.code_bucket}/tarantool.tar.gz"

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
  kms_key_arn     = aws_kms_key.this.arn
}

# API Gateway logs with one role for all APIs of an account in a region.
data "aws_iam_policy_document" "api_logs" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["apigateway.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "api_logs" {
  count = var.api_logging_role ? 1 : 0

  name               = "${var.name}-api-logs"
  assume_role_policy = data.aws_iam_policy_document.api_logs.json
}

resource "aws_iam_role_policy_attachment" "api_logs" {
  count = var.api_logging_role ? 1 : 0

  role       = aws_iam_role.api_logs[0].name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs"
}

resource "aws_api_gateway_account" "this" {
  count = var.api_logging_role ? 1 : 0

  cloudwatch_role_arn = aws_iam_role.api_logs[0].arn

  depends_on = [aws_iam_role_policy_attachment.api_logs]
}

resource "aws_cloudwatch_log_group" "access" {
  name              = "/minitoolstream/${var.name}/access"
  retention_in_days = 30
  kms_key_id        = aws_kms_key.this.arn

  depends_on = [aws_api_gateway_account.this] # whoever logs here waits for the role
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
  access_log_arn     = aws_cloudwatch_log_group.access.arn
  settings           = merge({ MTS_PIPELINE_DATABASE = module.database.url }, var.settings)
}
