variable "name" {
  description = "Name of the API."
  type        = string
}

variable "stage" {
  description = "Name of the stage: the first part of every path."
  type        = string
}

variable "functions" {
  description = "The functions that have routes, by their name in routes.tf.json."
  type = map(object({
    name       = string
    invoke_arn = string
  }))
}

variable "authorizer" {
  description = "The function that is asked before every route."
  type = object({
    name       = string
    invoke_arn = string
  })
}

variable "preflight" {
  description = "The function that answers browsers' questions, OPTIONS."
  type = object({
    name       = string
    invoke_arn = string
  })
}

variable "cors_origins" {
  description = "Web origins whose pages may call the API; none: it does not answer OPTIONS."
  type        = list(string)
  default     = []
}

variable "authorizer_seconds" {
  description = "How long API Gateway keeps the authorizer's answer. The functions check the token themselves as well."
  type        = number
  default     = 60
}

variable "rate_limit" {
  description = "Requests a second, for all callers together."
  type        = number
  default     = 1000
}

variable "burst_limit" {
  description = "Requests at once beyond that."
  type        = number
  default     = 500
}

variable "access_log_arn" {
  description = "Log group for a line a request; null: none. API Gateway needs a role for that, once an account."
  type        = string
  default     = null
}

variable "tracing" {
  description = "Whether X-Ray traces requests."
  type        = bool
  default     = false
}
