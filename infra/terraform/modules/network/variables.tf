variable "name" {
  description = "What all names begin with."
  type        = string
}

variable "region" {
  description = "Region, as in the names of endpoints."
  type        = string
}

variable "cidr" {
  description = "Addresses of the VPC."
  type        = string
  default     = "10.40.0.0/16"
}

variable "zones" {
  description = "Availability zones, at least two."
  type        = list(string)
}

variable "nat" {
  description = "Whether machines in the private subnets reach the internet: Tarantool's needs it for its packages, unless its image has them."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "Key for the log of flows."
  type        = string
}
