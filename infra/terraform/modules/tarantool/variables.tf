variable "name" {
  description = "What all names begin with."
  type        = string
}

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "subnet_id" {
  description = "A private subnet."
  type        = string
}

variable "zone" {
  description = "Availability zone of that subnet."
  type        = string
}

variable "client_security_group_ids" {
  description = "Who may connect: security groups, by a name of each."
  type        = map(string)
}

variable "ami_id" {
  description = "Image with Debian 12, or one that has Tarantool already."
  type        = string
}

variable "instance_type" {
  description = "Its memory holds all metadata (docs/limits.md)."
  type        = string
  default     = "r7i.large"
}

variable "memory_bytes" {
  description = "memtx_memory: what of the machine's memory is for metadata."
  type        = number
  default     = 8589934592
}

variable "disk_gb" {
  description = "Size of the volume with log and snapshots."
  type        = number
  default     = 100
}

variable "kms_key_arn" {
  description = "Key of the volumes, of the backups and of the secret."
  type        = string
}

variable "secret_arn" {
  description = "The secret with tarantool.password."
  type        = string
}

variable "code_url" {
  description = "s3:// URL of an archive (tar.gz) of the folder tarantool/ of this version."
  type        = string
}

variable "backup_days" {
  description = "How long snapshots of the volume are kept."
  type        = number
  default     = 14
}

variable "region" {
  description = "Region, as in the name of the alarm's action."
  type        = string
}
