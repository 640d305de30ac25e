variable "name" {
  description = "Name of the rule."
  type        = string
}

variable "expression" {
  description = "When: rate(...) or cron(...)."
  type        = string
  default     = "rate(1 minute)"
}

variable "function_name" {
  description = "The function that is called."
  type        = string
}

variable "function_arn" {
  description = "Its ARN."
  type        = string
}
