resource "aws_security_group" "this" {
  name        = "${var.name}-tarantool"
  description = "Tarantool: in from functions, out for packages and AWS"
  vpc_id      = var.vpc_id

  egress {
    description = "HTTPS: packages, S3, Secrets Manager"
    from_port   = 443
    to_port     = 443
    protocol    = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = var.client_security_group_ids

  security_group_id            = aws_security_group.this.id
  description                  = "from ${each.key}"
  referenced_security_group_id = each.value
  from_port                    = 3301
  to_port                      = 3301
  ip_protocol                  = "tcp"
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "this" {
  statement {
    sid       = "Password"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.secret_arn]
  }

  statement {
    sid       = "Key" # the secret is encrypted with it
    actions   = ["kms:Decrypt"]
    resources = [var.kms_key_arn]
  }

  statement {
    sid       = "Code"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::${trimprefix(var.code_url, "s3://")}"]
  }
}

resource "aws_iam_role" "this" {
  name               = "${var.name}-tarantool"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "this" {
  name   = "${var.name}-tarantool"
  role   = aws_iam_role.this.id
  policy = data.aws_iam_policy_document.this.json
}

resource "aws_iam_instance_profile" "this" {
  name = "${var.name}-tarantool"
  role = aws_iam_role.this.name
}

resource "aws_ebs_volume" "data" {
  availability_zone = var.zone
  size              = var.disk_gb
  type              = "gp3"
  encrypted         = true
  kms_key_id        = var.kms_key_arn

  tags = { Name = "${var.name}-tarantool", Backup = var.name }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_instance" "this" {
  ami                         = var.ami_id
  instance_type               = var.instance_type
  subnet_id                   = var.subnet_id
  vpc_security_group_ids      = [aws_security_group.this.id]
  iam_instance_profile        = aws_iam_instance_profile.this.name
  associate_public_ip_address = false
  monitoring                  = true
  ebs_optimized               = true

  user_data = templatefile("${path.module}/user_data.sh", {
    secret       = var.secret_arn
    code_url     = var.code_url
    memory_bytes = var.memory_bytes
  })

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
  }

  root_block_device {
    encrypted  = true
    kms_key_id = var.kms_key_arn
  }

  tags = { Name = "${var.name}-tarantool" }

  lifecycle {
    ignore_changes = [ami] # a newer image is no reason to replace what holds the metadata
  }
}

resource "aws_volume_attachment" "data" {
  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.data.id
  instance_id = aws_instance.this.id
}

# The journal in the bucket is some seconds behind (docs/recovery.md); a snapshot of the disk is the faster way back.
resource "aws_backup_vault" "this" {
  name        = "${var.name}-tarantool"
  kms_key_arn = var.kms_key_arn
}

resource "aws_backup_plan" "this" {
  name = "${var.name}-tarantool"

  rule {
    rule_name         = "hourly"
    target_vault_name = aws_backup_vault.this.name
    schedule          = "cron(0 * * * ? *)"

    lifecycle {
      delete_after = var.backup_days
    }
  }
}

data "aws_iam_policy_document" "backup_assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["backup.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "backup" {
  name               = "${var.name}-backup"
  assume_role_policy = data.aws_iam_policy_document.backup_assume.json
}

resource "aws_iam_role_policy_attachment" "backup" {
  role       = aws_iam_role.backup.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSBackupServiceRolePolicyForBackup"
}

resource "aws_backup_selection" "this" {
  name         = "${var.name}-tarantool"
  plan_id      = aws_backup_plan.this.id
  iam_role_arn = aws_iam_role.backup.arn
  resources    = [aws_ebs_volume.data.arn]
}

resource "aws_cloudwatch_metric_alarm" "recover" {
  alarm_name          = "${var.name}-tarantool-recover"
  alarm_description   = "The machine under Tarantool failed: it is started elsewhere, with its address and disk."
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed_System"
  dimensions          = { InstanceId = aws_instance.this.id }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 2
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  alarm_actions       = ["arn:aws:automate:${var.region}:ec2:recover"]
}
