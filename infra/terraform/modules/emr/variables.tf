variable "name" {
  description = "What all names begin with."
  type        = string
}

variable "bucket_arn" {
  description = "ARN of the bucket with the payloads."
  type        = string
}

variable "code_bucket_arn" {
  description = "ARN of the bucket with what `make spark-archive` makes, under spark/; jobs log under logs/."
  type        = string
}

variable "secret_arn" {
  description = "The secret with tarantool.password."
  type        = string
}

variable "kms_key_arn" {
  description = "Key of the secret and of the payloads."
  type        = string
}

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets from which Tarantool can be reached."
  type        = list(string)
}

variable "release" {
  description = "EMR's release: 7.x is Spark 3.5, 8.x is Spark 4.0."
  type        = string
  default     = "emr-7.13.0"
}

variable "max_cpu" {
  description = "The most that all jobs use at once."
  type        = string
  default     = "32 vCPU"
}

variable "max_memory" {
  description = "The most that all jobs use at once."
  type        = string
  default     = "128 GB"
}
