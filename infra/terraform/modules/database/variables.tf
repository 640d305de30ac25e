variable "name" {
  description = "What all names begin with."
  type        = string
}

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets, at least two."
  type        = list(string)
}

variable "client_security_group_ids" {
  description = "Who may connect: security groups, by a name of each."
  type        = map(string)
}

variable "password" {
  description = "Password of the user `mts`: pipeline.password of the secret."
  type        = string
  sensitive   = true
}

variable "instance_class" {
  description = "Size of the machine."
  type        = string
  default     = "db.t4g.small"
}

variable "multi_az" {
  description = "Whether a second machine stands by."
  type        = bool
  default     = false
}

variable "kms_key_arn" {
  description = "Key of disk and backups."
  type        = string
}

variable "deletion_protection" {
  description = "Whether it cannot be destroyed."
  type        = bool
  default     = true
}
