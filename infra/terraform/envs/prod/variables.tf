variable "region" {
  description = "Region of all of it."
  type        = string
  default     = "eu-central-1"
}

variable "zones" {
  description = "Two availability zones of the region; Tarantool is in the first."
  type        = list(string)
  default     = ["eu-central-1a", "eu-central-1b"]
}

variable "packages" {
  description = "Folder with the zips of `make package`."
  type        = string
  default     = "../../../../dist/functions"
}

variable "code_bucket" {
  description = "A bucket of yours with tarantool.tar.gz and, under spark/, what `make spark-archive` makes; not that of the state."
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
  default     = []
}

variable "api_logging_role" {
  description = "false where another environment of this account and region gives API Gateway its role for logs."
  type        = bool
  default     = true
}

variable "settings" {
  description = "Further settings of all functions, as environment variables (docs/configuration.md)."
  type        = map(string)
  default     = {}
}
