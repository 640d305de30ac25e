# Paths and routes are in routes.tf.json, which `python -m scripts.gen_terraform` writes from the functions' own table.

locals {
  preflight_paths = length(var.cors_origins) > 0 ? local.paths : {}

  # A page shall be able to read why it was refused. Of several origins a gateway response can name but the one that asks;
  # what it lets anybody read are the errors below.
  cors = merge(
    length(var.cors_origins) == 0 ? {} : {
      "gatewayresponse.header.Access-Control-Allow-Origin" = (
        length(var.cors_origins) == 1 ? "'${var.cors_origins[0]}'" : "method.request.header.Origin"
      )
    },
    length(var.cors_origins) > 1 ? { "gatewayresponse.header.Vary" = "'origin'" } : {},
  )
}

resource "aws_api_gateway_rest_api" "this" {
  name        = var.name
  description = "MiniToolStream"

  # Every body reaches the functions byte for byte; their answers are text.
  binary_media_types = ["*/*"]

  endpoint_configuration {
    types = ["REGIONAL"]
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_api_gateway_authorizer" "token" {
  name                             = "token"
  rest_api_id                      = aws_api_gateway_rest_api.this.id
  type                             = "TOKEN"
  authorizer_uri                   = var.authorizer.invoke_arn
  identity_source                  = "method.request.header.Authorization"
  authorizer_result_ttl_in_seconds = var.authorizer_seconds
}

resource "aws_api_gateway_method" "this" {
  for_each = local.routes

  rest_api_id   = aws_api_gateway_rest_api.this.id
  resource_id   = each.value.resource_id
  http_method   = each.value.method
  authorization = "CUSTOM"
  authorizer_id = aws_api_gateway_authorizer.token.id
}

resource "aws_api_gateway_integration" "this" {
  for_each = local.routes

  rest_api_id             = aws_api_gateway_rest_api.this.id
  resource_id             = each.value.resource_id
  http_method             = aws_api_gateway_method.this[each.key].http_method
  type                    = "AWS_PROXY"
  integration_http_method = "POST"
  uri                     = var.functions[each.value.function].invoke_arn
  timeout_milliseconds    = 29000
}

# What a browser asks before a page of another origin may call a route; it sends no token with it.
resource "aws_api_gateway_method" "preflight" {
  for_each = local.preflight_paths

  rest_api_id   = aws_api_gateway_rest_api.this.id
  resource_id   = each.value
  http_method   = "OPTIONS"
  authorization = "NONE"
}

resource "aws_api_gateway_integration" "preflight" {
  for_each = local.preflight_paths

  rest_api_id             = aws_api_gateway_rest_api.this.id
  resource_id             = each.value
  http_method             = aws_api_gateway_method.preflight[each.key].http_method
  type                    = "AWS_PROXY"
  integration_http_method = "POST"
  uri                     = var.preflight.invoke_arn
}

resource "aws_lambda_permission" "preflight" {
  statement_id  = "api"
  action        = "lambda:InvokeFunction"
  function_name = var.preflight.name
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${aws_api_gateway_rest_api.this.execution_arn}/*/OPTIONS/*"
}

resource "aws_lambda_permission" "route" {
  for_each = var.functions

  statement_id  = "api"
  action        = "lambda:InvokeFunction"
  function_name = each.value.name
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${aws_api_gateway_rest_api.this.execution_arn}/*"
}

resource "aws_lambda_permission" "authorizer" {
  statement_id  = "api"
  action        = "lambda:InvokeFunction"
  function_name = var.authorizer.name
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${aws_api_gateway_rest_api.this.execution_arn}/authorizers/*"
}

# What API Gateway answers by itself has the shape of all our errors. Where there is no route it looks for a signature of
# its own, and says that it misses that, or that our token is none.
resource "aws_api_gateway_gateway_response" "error" {
  for_each = {
    UNAUTHORIZED                 = { status = "401", code = "unauthorized" }
    ACCESS_DENIED                = { status = "401", code = "unauthorized" }
    MISSING_AUTHENTICATION_TOKEN = { status = "404", code = "not_found", message = "there is no such route" }
    THROTTLED                    = { status = "429", code = "rate_limited" }
    INTEGRATION_TIMEOUT          = { status = "504", code = "timeout" }
    REQUEST_TOO_LARGE            = { status = "413", code = "too_large" }
    DEFAULT_4XX                  = { status = "404", code = "not_found", message = "there is no such route" }
    DEFAULT_5XX                  = { status = "503", code = "unavailable" }
  }

  rest_api_id   = aws_api_gateway_rest_api.this.id
  response_type = each.key
  status_code   = each.value.status

  response_parameters = local.cors

  response_templates = {
    "application/json" = join("", [
      "{\"error\":{\"code\":\"${each.value.code}\",\"message\":",
      try(jsonencode(each.value.message), "$context.error.messageString"),
      ",\"details\":{}}}",
    ])
  }
}

resource "aws_api_gateway_deployment" "this" {
  rest_api_id = aws_api_gateway_rest_api.this.id

  triggers = {
    content = sha1(jsonencode([
      filesha1("${path.module}/routes.tf.json"),
      filesha1("${path.module}/main.tf"),
      { for name, function in var.functions : name => function.invoke_arn },
      var.authorizer.invoke_arn,
      var.preflight.invoke_arn,
      var.cors_origins,
    ]))
  }

  depends_on = [
    aws_api_gateway_integration.this,
    aws_api_gateway_method.this,
    aws_api_gateway_integration.preflight,
    aws_api_gateway_method.preflight,
    aws_api_gateway_gateway_response.error,
  ]

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_api_gateway_stage" "this" {
  rest_api_id          = aws_api_gateway_rest_api.this.id
  deployment_id        = aws_api_gateway_deployment.this.id
  stage_name           = var.stage
  xray_tracing_enabled = var.tracing

  dynamic "access_log_settings" {
    for_each = var.access_log_arn == null ? [] : [var.access_log_arn]

    content {
      destination_arn = access_log_settings.value
      format = jsonencode({
        request_id = "$context.requestId"
        method     = "$context.httpMethod"
        route      = "$context.resourcePath"
        status     = "$context.status"
        ms         = "$context.responseLatency"
      })
    }
  }
}

resource "aws_api_gateway_method_settings" "this" {
  rest_api_id = aws_api_gateway_rest_api.this.id
  stage_name  = aws_api_gateway_stage.this.stage_name
  method_path = "*/*"

  settings {
    metrics_enabled        = true
    throttling_rate_limit  = var.rate_limit
    throttling_burst_limit = var.burst_limit
  }
}
