data "aws_caller_identity" "this" {}

locals {
  # Known before the queues are, which take most of the time: the functions do not wait for them.
  account          = data.aws_caller_identity.this.account_id
  queue_arn        = "arn:aws:sqs:${var.region}:${local.account}:${var.name}-events"
  dead_letters_url = "${coalesce(var.sqs_endpoint, "https://sqs.${var.region}.amazonaws.com")}/${local.account}/${var.name}-events-dead"

  # What is called, and how much of it; the figures are those of functions/<name>/.chalice/config.json.
  functions = {
    for key, about in {
      authorizer        = { source = "authorizer", handler = "app.authorize" }
      fetch             = { source = "fetch", handler = "app.app" }
      on_object_created = { source = "on_object_created", handler = "app.on_object_created" }
      preflight         = { source = "authorizer", handler = "app.preflight" }
      pipeline          = { source = "pipeline", handler = "app.app" }
      publish           = { source = "publish", handler = "app.app" }
      ttl_sweeper       = { source = "ttl_sweeper", handler = "app.app" }
      sweep             = { source = "ttl_sweeper", handler = "app.sweep" }
    } : key => merge(about, jsondecode(file("${local.sources}/${about.source}/.chalice/config.json")).stages["prod"])
  }
  # What every function needs when it is asked for.
  extras = concat(
    var.kms_key_arn == null ? [] : [{
      Sid = "Key", Effect = "Allow", Action = ["kms:Decrypt", "kms:GenerateDataKey"], Resource = var.kms_key_arn
    }],
    var.tracing ? [{
      Sid = "Traces", Effect = "Allow", Action = ["xray:PutTraceSegments", "xray:PutTelemetryRecords"], Resource = "*"
    }] : [],
  )
  sources = "${path.module}/../../../../functions"
  routed  = ["fetch", "pipeline", "publish", "ttl_sweeper"]
}

resource "aws_secretsmanager_secret" "this" {
  name                    = var.name
  description             = "Secrets of MiniToolStream: a JSON map of settings' keys."
  kms_key_id              = var.kms_key_arn
  recovery_window_in_days = var.force_destroy ? 0 : 7
}

resource "aws_secretsmanager_secret_version" "this" {
  secret_id     = aws_secretsmanager_secret.this.id
  secret_string = jsonencode(var.secrets)

  lifecycle {
    ignore_changes = [secret_string] # rotated without Terraform
  }
}

module "bucket_events" {
  source = "../bucket_events"

  bucket             = var.name
  queue              = "${var.name}-events"
  cors_origins       = var.cors_origins
  kms_key_arn        = var.kms_key_arn
  tls_only           = var.tls_only
  force_destroy      = var.force_destroy
  visibility_seconds = var.visibility_seconds
  tries              = var.tries
}

module "function" {
  source   = "../function"
  for_each = local.functions

  name                 = "${var.name}-${replace(each.key, "_", "-")}"
  package              = "${var.packages}/${each.value.source}.zip"
  handler              = each.value.handler
  memory               = each.value.lambda_memory_size
  timeout              = each.value.lambda_timeout
  reserved_concurrency = each.key == "sweep" ? -1 : var.concurrency
  subnet_ids           = var.subnet_ids
  security_group_ids   = var.security_group_ids
  kms_key_arn          = var.kms_key_arn
  tracing              = var.tracing ? "Active" : "PassThrough"

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        for statement in jsondecode(templatefile("${local.sources}/${each.value.source}/policy.json", {
          function         = "${var.name}-${replace(each.key, "_", "-")}"
          bucket_arn       = module.bucket_events.bucket_arn
          queue_arn        = local.queue_arn
          dead_letters_arn = "${local.queue_arn}-dead"
          secret_arn       = aws_secretsmanager_secret.this.arn
        })).Statement : statement
        if !(each.key == "preflight" && statement.Sid == "Secret") # it answers anybody
      ],
      local.extras,
    )
  })

  environment = merge(
    {
      MTS_HOME              = "/tmp/mts"
      MTS_AWS_SECRET        = aws_secretsmanager_secret.this.name
      MTS_AWS_DEAD_LETTERS  = local.dead_letters_url
      MTS_TARANTOOL_ADDRESS = var.tarantool_address
      MTS_TARANTOOL_TIMEOUT = "5s"
      MTS_MINIO_BUCKET      = module.bucket_events.bucket
      MTS_MINIO_REGION      = var.region
      MTS_MINIO_ENDPOINT    = coalesce(var.s3_endpoint, "https://s3.${var.region}.amazonaws.com")
    },
    length(var.cors_origins) > 0 ? { MTS_SERVER_CORS_ORIGINS = join(",", var.cors_origins) } : {},
    var.settings,
  )

  depends_on = [aws_secretsmanager_secret_version.this]
}

resource "aws_lambda_event_source_mapping" "events" {
  event_source_arn                   = module.bucket_events.queue_arn
  function_name                      = module.function["on_object_created"].arn
  batch_size                         = 10
  maximum_batching_window_in_seconds = 0
  function_response_types            = ["ReportBatchItemFailures"]

  # Without it more would be taken than may be called: what is throttled counts as a try, and ends as a dead letter.
  dynamic "scaling_config" {
    for_each = var.concurrency < 0 ? [] : [var.concurrency]

    content {
      maximum_concurrency = scaling_config.value
    }
  }
}

module "schedule" {
  source = "../schedule"

  name          = "${var.name}-sweep"
  function_name = module.function["sweep"].name
  function_arn  = module.function["sweep"].arn
}

module "api" {
  source = "../api"

  name           = var.name
  stage          = var.stage
  functions      = { for key in local.routed : key => module.function[key] }
  authorizer     = module.function["authorizer"]
  preflight      = module.function["preflight"]
  cors_origins   = var.cors_origins
  access_log_arn = var.access_log_arn
  tracing        = var.tracing
}

module "observability" {
  source = "../observability"

  name              = var.name
  functions         = [for key, function in local.functions : "${var.name}-${replace(key, "_", "-")}"]
  api_name          = module.api.name
  api_stage         = module.api.stage
  queue_name        = module.bucket_events.queue_name
  dead_letters_name = module.bucket_events.dead_letters_name
  kms_key_arn       = var.kms_key_arn
}
