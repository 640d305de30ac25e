variable "name" {
  description = "What all names begin with, such as minitoolstream-dev."
  type        = string
}

variable "stage" {
  description = "Stage of the API."
  type        = string
}

variable "region" {
  description = "Region of all of it."
  type        = string
}

variable "packages" {
  description = "Folder with the zips of `make package`."
  type        = string
}

variable "tarantool_address" {
  description = "host:port of Tarantool."
  type        = string
}

variable "secrets" {
  description = "The secret's first content: server.token, tarantool.password, pipeline.password. Rotation changes it later."
  type        = map(string)
  sensitive   = true
}

variable "s3_endpoint" {
  description = "URL of S3; null: the region's."
  type        = string
  default     = null
}

variable "sqs_endpoint" {
  description = "URL of SQS; null: the region's."
  type        = string
  default     = null
}

variable "settings" {
  description = "Further settings of all functions, as environment variables (docs/configuration.md)."
  type        = map(string)
  default     = {}
}

variable "subnet_ids" {
  description = "Private subnets of the functions; none: outside of any VPC."
  type        = list(string)
  default     = []
}

variable "security_group_ids" {
  description = "Security groups of the functions."
  type        = list(string)
  default     = []
}

variable "cors_origins" {
  description = "Web origins whose pages may call the API and use presigned URLs."
  type        = list(string)
  default     = []
}

variable "kms_key_arn" {
  description = "Key for everything that is kept; null: keys of AWS."
  type        = string
  default     = null
}

variable "concurrency" {
  description = "The most calls at once of each function that takes requests or events. -1: no limit of its own."
  type        = number
  default     = -1

  validation {
    condition     = var.concurrency == -1 || (var.concurrency >= 2 && var.concurrency <= 1000)
    error_message = "It is -1, or 2 to 1000: Lambda takes a queue's events with no fewer and no more."
  }
}

variable "tls_only" {
  description = "Whether the bucket refuses requests without TLS."
  type        = bool
  default     = true
}

variable "force_destroy" {
  description = "Whether bucket and secret may be destroyed with what is in them."
  type        = bool
  default     = false
}

variable "access_log_arn" {
  description = "Log group for a line a request; null: none."
  type        = string
  default     = null
}

variable "tracing" {
  description = "Whether X-Ray traces requests and calls."
  type        = bool
  default     = false
}

variable "visibility_seconds" {
  description = "How long an event of the bucket is not given again."
  type        = number
  default     = 180
}

variable "tries" {
  description = "How often an event of the bucket is tried."
  type        = number
  default     = 5
}
