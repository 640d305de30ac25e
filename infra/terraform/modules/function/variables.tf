variable "name" {
  description = "Name of the function, its role and its log group."
  type        = string
}

variable "package" {
  description = "The zip that `make package` wrote."
  type        = string
}

variable "handler" {
  description = "module.function that Lambda calls."
  type        = string
  default     = "app.app"
}

variable "policy" {
  description = "What the function may do, as a JSON policy: that of functions/<name>/policy.json with its names filled in."
  type        = string
}

variable "environment" {
  description = "Settings (docs/configuration.md). Secrets do not belong here: `aws.secret` names where they are."
  type        = map(string)
}

variable "memory" {
  description = "MB; CPU comes in proportion."
  type        = number
}

variable "timeout" {
  description = "Seconds after which Lambda ends a call."
  type        = number
}

variable "reserved_concurrency" {
  description = "The most calls at once: connections to Tarantool are as many. -1: no limit of its own."
  type        = number
  default     = -1
}

variable "subnet_ids" {
  description = "Private subnets from which Tarantool can be reached; none: outside of any VPC."
  type        = list(string)
  default     = []
}

variable "security_group_ids" {
  description = "Security groups of the function, with subnet_ids."
  type        = list(string)
  default     = []
}

variable "kms_key_arn" {
  description = "Key for environment and logs; null: keys of AWS."
  type        = string
  default     = null
}

variable "log_days" {
  description = "How long log lines are kept."
  type        = number
  default     = 30
}

variable "tracing" {
  description = "X-Ray: Active or PassThrough."
  type        = string
  default     = "PassThrough"
}
