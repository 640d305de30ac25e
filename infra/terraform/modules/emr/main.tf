# Spark without a cluster of one's own, for the steps of spark_emr/ (docs/spark.md).

resource "aws_security_group" "this" {
  name        = "${var.name}-emr"
  description = "Spark: out to Tarantool, databases and AWS"
  vpc_id      = var.vpc_id

  egress {
    description = "Tarantool"
    from_port   = 3301
    to_port     = 3301
    protocol    = "tcp"
    cidr_blocks = ["10.0.0.0/8"]
  }

  egress {
    description = "MySQL"
    from_port   = 3306
    to_port     = 3306
    protocol    = "tcp"
    cidr_blocks = ["10.0.0.0/8"]
  }

  egress {
    description = "HTTPS: S3, Secrets Manager"
    from_port   = 443
    to_port     = 443
    protocol    = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_emrserverless_application" "this" {
  name          = var.name
  release_label = var.release
  type          = "spark"

  maximum_capacity {
    cpu    = var.max_cpu
    memory = var.max_memory
  }

  network_configuration {
    subnet_ids         = var.subnet_ids
    security_group_ids = [aws_security_group.this.id]
  }

  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = 15
  }
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["emr-serverless.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "this" {
  statement {
    sid       = "List"
    actions   = ["s3:ListBucket"]
    resources = [var.bucket_arn]
  }

  statement {
    sid     = "Read"
    actions = ["s3:GetObject"]
    resources = [
      for prefix in ["m", "_mts/packs", "_mts/journal", "replays", "pipeline"] : "${var.bucket_arn}/${prefix}/*"
    ]
  }

  statement {
    sid       = "Write"
    actions   = ["s3:PutObject", "s3:AbortMultipartUpload"]
    resources = ["${var.bucket_arn}/replays/*", "${var.bucket_arn}/pipeline/*", "${var.bucket_arn}/_mts/packs/*"]
  }

  # What Tarantool runs is in the same bucket: a job reads its own code, and replaces none.
  statement {
    sid       = "Code"
    actions   = ["s3:GetObject"]
    resources = ["${var.code_bucket_arn}/spark/*"]
  }

  statement {
    sid       = "ListCode"
    actions   = ["s3:ListBucket"]
    resources = [var.code_bucket_arn]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["spark/*", "logs/*"]
    }
  }

  statement {
    sid       = "Logs"
    actions   = ["s3:PutObject"]
    resources = ["${var.code_bucket_arn}/logs/*"]
  }

  statement {
    sid       = "Key" # secret and payloads are encrypted with it
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [var.kms_key_arn]
  }

  statement {
    sid       = "Secret"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.secret_arn]
  }
}

resource "aws_iam_role" "this" {
  name               = "${var.name}-emr"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "this" {
  name   = "${var.name}-emr"
  role   = aws_iam_role.this.id
  policy = data.aws_iam_policy_document.this.json
}
