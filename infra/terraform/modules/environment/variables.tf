variable "region" {
  description = "Region of all of it."
  type        = string
}

variable "zones" {
  description = "Two availability zones of the region; Tarantool is in the first."
  type        = list(string)
}

variable "packages" {
  description = "Folder with the zips of `make package`."
  type        = string
}

variable "code_bucket" {
  description = "A bucket of yours with tarantool.tar.gz and the archive of `make spark-archive`."
  type        = string
}

variable "tarantool_ami" {
  description = "Image with Debian 12."
  type        = string
}

variable "secrets" {
  description = "server.token, tarantool.password, pipeline.password: give them by TF_VAR_secrets, never in a file."
  type        = map(string)
  sensitive   = true
}

variable "cors_origins" {
  description = "Web origins whose pages may call the API and use presigned URLs."
  type        = list(string)
}

variable "name" {
  description = "What all names begin with, such as minitoolstream-dev."
  type        = string
}

variable "stage" {
  description = "Stage of the API: the first part of every path."
  type        = string
}

variable "tarantool_instance_type" {
  description = "Machine of Tarantool: its memory holds the metadata."
  type        = string
}

variable "tarantool_memory_bytes" {
  description = "Memory for metadata; about half of the machine's."
  type        = number
}

variable "highly_available" {
  description = "Whether the pipeline's database has a second machine, and is protected from being deleted."
  type        = bool
}

variable "concurrency" {
  description = "The most calls at once of each function that takes requests or events: seven, reserved of the account's 1,000, of which AWS keeps 100 for others."
  type        = number
}

variable "api_logging_role" {
  description = "Whether to give API Gateway its role for logs, which an account has once a region; false: it has one."
  type        = bool
}

variable "settings" {
  description = "Further settings of all functions, as environment variables (docs/configuration.md)."
  type        = map(string)
}
